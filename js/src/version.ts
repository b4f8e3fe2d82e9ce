/** The version of modlab that these sources belong to; a test holds it equal to Python's `__version__`. */
export const VERSION = "0.1.0";
