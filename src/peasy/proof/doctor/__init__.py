"""A DOCTOR: somebody's attention function or module, compared with the formula, and the mistake called by its name.

May import: numpy, torch where the patient uses it, errors. Imported by: views (records only), workbench.
In: a function, a class or an object, and seeded numbers. Out: a Diagnosis: conventions, mistakes, cautions.
"""
