"""Commands: one function per command, combining the packages below.

May import: every package but cli, server and notebook. Imported by: cli, server, notebook and peasy's public names.
In: the arguments of a command. Out: a Result, which displays, saves and serialises itself.
"""
