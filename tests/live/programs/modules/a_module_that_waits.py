import __main__

__main__.hold()
