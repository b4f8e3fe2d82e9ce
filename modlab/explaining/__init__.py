"""An exception → why it was raised: its traceback, the call that failed, the rule that matches, and the fix."""
