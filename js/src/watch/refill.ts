/** Lists that change while one reads them: what stands stays, or a press that lasts from one picture to the next would be lost. */

/** Items are told apart by `data-key`, those of one key by their order; of one that stays, text and attributes are renewed, and its listeners remain. */
export function refill(list: HTMLElement, items: readonly HTMLElement[]): void {
  const focused = (list.getRootNode() as Document | ShadowRoot).activeElement as HTMLElement | null;
  const before = [...list.children] as HTMLElement[];
  const known = items.map((item) => {
    const at = before.findIndex((one) => one.dataset.key === item.dataset.key);
    return at < 0 ? null : before.splice(at, 1)[0];
  });
  for (const left of before) left.remove();    // first, or what stands behind would be moved
  items.forEach((item, place) => {
    const old = known[place];
    if (old) renew(old, item);
    const [now, there] = [old ?? item, list.children[place] ?? null];
    if (now !== there) list.insertBefore(now, there);
  });
  if (list.contains(focused)) focused?.focus({ preventScroll: true });    // what was moved has lost it
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
