"""The command line tools: one module for each, with a function main()."""
