"""A nemesis: random faults, all of them from a seed, while people claim and operators change things;
then everything that was told is held against what is there. README.md tells how to run it."""
