/** Lists that change while one reads them: what stands stays, or a press that lasts from one picture to the next would be lost. */

/** Items are told apart by `data-key`; of one that stays, text and attributes are renewed, and its listeners remain. */
export function refill(list: HTMLElement, items: readonly HTMLElement[]): void {
  const before = new Map([...list.children].map((one) => [(one as HTMLElement).dataset.key, one]));
  items.forEach((item, place) => {
    const known = before.get(item.dataset.key);
    before.delete(item.dataset.key);
    if (known) renew(known, item);
    const [now, there] = [known ?? item, list.children[place] ?? null];
    if (now !== there) list.insertBefore(now, there);
  });
  for (const left of before.values()) left.remove();
}

function renew(old: ChildNode, made: ChildNode): void {
  if (old.nodeName !== made.nodeName) return old.replaceWith(made);
  if (!(old instanceof Element && made instanceof Element)) {
    if (old.nodeValue !== made.nodeValue) old.nodeValue = made.nodeValue;
    return;
  }
  if (old.hasAttribute("data-said")) return;    // it says that something was copied
  for (const { name, value } of made.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  for (const { name } of [...old.attributes]) if (!made.hasAttribute(name)) old.removeAttribute(name);
  const [before, after] = [[...old.childNodes], [...made.childNodes]];
  after.forEach((child, place) => (before[place] ? renew(before[place], child) : old.append(child)));
  for (const left of before.slice(after.length)) left.remove();
}
