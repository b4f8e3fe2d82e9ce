/** Letters typed in quick succession: the beginning of a name. */

const PAUSE = 700;

export class TypeAhead {
  text = "";
  private last = 0;

  /** Takes a key if it goes on with what is being typed, or may begin a name. */
  takes(key: string, mayBegin: boolean, now = Date.now()): boolean {
    const goesOn = this.text !== "" && now - this.last < PAUSE;
    if ([...key].length !== 1 || key === " " || (!goesOn && !mayBegin) || key === "/" || key === "*") {
      this.text = "";
      return false;
    }
    this.text = goesOn ? this.text + key : key;
    this.last = now;
    return true;
  }
}
