"""An exception → why it was raised: its traceback, the call that failed, the rule that knows it, and what mends it."""
