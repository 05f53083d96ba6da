"""Checks of a user's attention implementation: compared with the formula, with its mistakes named.

May import: numpy, torch if the code under test uses it, errors. Imported by: views (records only), commands.
In: a function, a class or an object, and seeded inputs. Out: a Diagnosis: conventions, mistakes, cautions.
"""
