"""Output documents as plain data (headings, tables, matrices, heat maps), made from results.

May import: plain records of the packages below; no torch, no rendering. Imported by: render, commands, the front ends.
In: records of lower packages (a result of a command draws its own document). Out: a Document.
"""
