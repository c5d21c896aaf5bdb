"""What tests of several folders build on: small data, short runs, and the comparison of what they leave behind.

`images`, `data_sets`: random pictures, and the layouts of data sets made of them. `runs`: flags of the shortest runs,
and whether two runs are the same to the bit. `run_folders`: folders of runs that were never trained. `tiny`: a network
of a few weights, and whole runs of trainers. `splits`: images whose pixels are their features. `samplers`, `mining`:
made-up classes, and draws held against their probabilities. `plain_metrics`: metrics by plain loops. `processes`,
`torchrun_main`: runs of several processes. `gpu`: a stand-in for a GPU. `launches`: programs that take no time.
`refusals`: errors of one line. `flags`: another value than the default. `documents`: examples that
the documentation prints.
"""
