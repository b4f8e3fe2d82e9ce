/** What a screen reader says of an element that is named by its content. */
export function heard(element: Element | null | undefined): string {
  const parts = [...(element?.childNodes ?? [])].map((node) => {
    if (!(node instanceof Element)) return node.textContent ?? "";
    return node.getAttribute("aria-hidden") === "true" ? "" : node.getAttribute("aria-label") ?? heard(node);
  });
  return parts.join(" ").replace(/\s+/g, " ").trim();
}
