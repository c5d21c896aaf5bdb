"""The former name of `options.flags.plug_ins`, which users' plug-ins import."""

from options.flags.plug_ins import *  # noqa: F403
