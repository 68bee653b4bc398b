#!/usr/bin/env python
"""The command `gradwire` of this Python's package. It does not import the package, which would load
PyTorch: that takes seconds, and the program starts in milliseconds."""

import importlib.util
import os
import sys

package = importlib.util.find_spec("gradwire")
if package is None or not package.submodule_search_locations:
    sys.exit("gradwire: the Python package gradwire is not installed for " + sys.executable)
file = os.path.join(package.submodule_search_locations[0], "program.py")
spec = importlib.util.spec_from_file_location("gradwire_program", file)
program = importlib.util.module_from_spec(spec)
spec.loader.exec_module(program)
program.main(sys.argv[1:])
