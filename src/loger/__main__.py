"""``python -m loger``: the same as the ``loger`` command."""

from loger.cli import main

if __name__ == "__main__":
    main()
