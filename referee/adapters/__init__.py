"""One file a program: how it is asked for the measures of a case.

An adapter has `PROGRAM`, the name in the table; `PACKAGES`, names of its distribution (none: this project);
`measure(case)`, as `referee.judge.judge` calls it, which returns nothing for cases that the program does not take; and
`SETTINGS`, kind of case -> what to set, or to do beforehand, for this project's definition. It calls the program as its
users do, with labels where the program takes labels. The import of the program stands inside `measure`.
"""
