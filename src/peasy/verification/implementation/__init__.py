"""Comparison of a user's attention code with the formula: equal, wrong with its mistakes, or not compared.

May import: numpy, torch if the code under test uses it, formula, errors. Imported by: testing, commands.
In: a function, a class or an object, and seeded inputs. Out: a Diagnosis: conventions, mistakes, cautions.

A call is recorded operation by operation (trace), the products of queries, keys and values are found (core), their
tokens, scale, mask and softmax are read by experiment (reading), and each step is judged against the formula (judge).
"""
