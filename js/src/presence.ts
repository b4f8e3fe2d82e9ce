/**
 * Tells when a view enters and leaves the document.
 *
 * A custom element is the one exact way: JupyterLab takes cells out of the page and puts them back while one scrolls,
 * and an output that is deleted says nothing. What observes the page does so between `arrived` and `left` alone.
 */

const TAG = "modlab-presence";

interface Presence extends HTMLElement {
  arrived?: () => void;
  left?: () => void;
}

export function presence(arrived: () => () => void): HTMLElement {
  define();
  const made = document.createElement(TAG) as Presence;
  let leave: (() => void) | null = null;
  made.arrived = () => {
    leave?.();
    leave = arrived();
  };
  made.left = () => {
    leave?.();
    leave = null;
  };
  return made;
}

/** Both bundles, of any version, may stand on one page: the element holds nothing of its own. */
function define(): void {
  if (customElements.get(TAG)) return;
  customElements.define(
    TAG,
    class extends HTMLElement {
      connectedCallback(): void {
        (this as Presence).arrived?.();
      }

      disconnectedCallback(): void {
        (this as Presence).left?.();
      }
    },
  );
}
