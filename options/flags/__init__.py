"""How a flag is declared: its range and default in a table (`Flag`, plug_ins.py), its role (roles.py), with which other
flags it acts (rules.py); the flags that plug-ins share (shared.py), configuration files (configs.py), old names
(migration.py).

Every plug-in folder uses this package; the rest of options/ uses the plug-ins.
"""

from options.flags.plug_ins import Flag

__all__ = ["Flag"]
