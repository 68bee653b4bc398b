"""Runs test programs at the same time, and then prints the output of each.

usage: together.py PROGRAM...

Measurements that mostly wait for shaped links disturb each other less than a test that computes.
"""

import subprocess
import sys
import tempfile


def main():
    outputs = [tempfile.TemporaryFile("w+") for _ in sys.argv[1:]]
    started = [subprocess.Popen([sys.executable, program], stdout=output, stderr=subprocess.STDOUT)
               for program, output in zip(sys.argv[1:], outputs)]
    statuses = [process.wait() for process in started]
    for output in outputs:
        output.seek(0)
        print(output.read())
    return max(map(abs, statuses))


if __name__ == "__main__":
    sys.exit(main())
