/** All views of one model: its tree at the left, the others as tabs beside it. Each is asked for when it is opened. */
import type { Context } from "../context";
import { button, element, lines, set, words } from "../elements";
import { filled } from "../fields";
import { copyButton } from "../frame";
import { SILENT, type Kernel } from "../kernel";
import lab from "./lab.css";
import { models } from "../models";
import { COMMON, complete, decode, type TreePayload } from "../payload";
import { hear, tell } from "../selection";
import { enclose } from "../shell";
import { sheets } from "../sheet/views";
import { SourcePanel } from "../tree/source";
import style from "../style.css";
import { show, type Drawing } from "../view";
import type { Role } from "../watch/data";
import { showWatch, type Shown } from "../watch/show";

const FACE = { ...COMMON, tabs: [] as readonly (readonly [name: string, title: string])[], stale: [] as readonly string[] };

/** A view in the lab has no border of its own; the tree leaves what it says of a module to the other panels. */
const INSIDE = ".view{border:0;border-radius:0}";
const TREE = ".head,.foot,.detail,.chip,.extra,.tree .tensors.tensors,.tree .share.share{display:none}.panes.panes{grid-template-columns:1fr}.row .type.type{display:block}.tree .heads.heads,.tree .row.row{grid-template-columns:minmax(0,1fr) 66px}.search.search{flex-wrap:nowrap}.search input{min-width:70px}.count{font-size:11px;white-space:nowrap}";
const SOURCE = ".head,.foot{display:none}.view .detail{max-height:none;border:0;padding:12px}.detail pre{max-height:380px}";

const source: Drawing = { style: "", panel: (json, _, context) => new SourcePanel(complete(json) as TreePayload, context) };

/** In which roles a watch shows what these tabs are about. */
const ROLES: Readonly<Record<string, Role>> = { activations: "activation", gradients: "gradient" };

/** Where one panel stands. */
interface Place {
  element: HTMLElement;
  told: HTMLElement;
  body: HTMLElement;
  /** What it shows; null: nothing yet. */
  bytes: ArrayBuffer | null;
  /** The module that it has been told of. */
  path: string | null;
}

export function showLab(host: HTMLElement, bytes: ArrayBuffer, kernel: Kernel, values: Context["ask"]): Shown {
  const made: Lab[] = [];
  enclose(host, "lab", style + lab, (shell) => {
    const panel = new Lab(bytes, { ...shell, ask: values }, kernel);
    made.push(panel);
    return [panel.elements, panel];
  });
  return made[0] as Lab;
}

class Lab implements Shown {
  readonly elements: readonly HTMLElement[];
  readonly #context: Context;
  readonly #kernel: Kernel;
  readonly #headline = element("span", { class: "headline" });
  readonly #foot = element("bdi");
  readonly #tabs: readonly HTMLButtonElement[];
  readonly #panel = element("div", { class: "tabpanel", id: "panel", role: "tabpanel" });
  readonly #places = new Map<string, Place>();
  #face: typeof FACE;
  #open = "";
  #path: string | null = null;
  #deaf = (): void => {};
  /** The watch of the model, which is pushed to; `#moves` while it runs. */
  readonly #plots = element("div");
  #watch: Shown | null = null;
  #moves = false;
  /** What the watch is to show as soon as it has been measured. */
  #role: Role | undefined;

  constructor(bytes: ArrayBuffer, context: Context, kernel: Kernel) {
    this.#context = context;
    this.#kernel = kernel;
    this.#face = filled(FACE, decode(bytes).json);
    this.#tabs = this.#face.tabs.map(([name, title]) => this.#tab(name, title));
    const tabs = element("div", { class: "tabs", role: "tablist", "aria-label": "views of the model" }, ...this.#tabs);
    tabs.addEventListener("keydown", (event) => this.#key(event));
    const fold = button("modules ▾", { class: "plain unfold", "aria-expanded": "true" }, () => set(fold, { "aria-expanded": fold.getAttribute("aria-expanded") !== "true" ? "true" : "false" }));
    const tree = this.#place("tree").element;
    tree.classList.add("pane");
    const { code } = this.#face;
    const again = button("read again", { class: "plain", title: "read the tree and the open panel again" }, () => this.#refresh(["tree", this.#open], true));
    this.elements = [
      element("header", { class: "head" }, element("span", { class: "what caption" }, "lab"), this.#headline, element("span", { class: "acts" }, again, copyButton("code", `copy ${code}`, () => code, context))),
      element("div", { class: "lab" }, element("div", { class: "modules" }, fold, tree), element("div", { class: "tabbed" }, tabs, this.#panel)),
      element("footer", { class: "foot" }, element("span", { class: "keys" }, ...["← → tabs", "Enter opens", "↑↓ modules", "/ search"].map((key) => element("span", {}, key))), this.#foot),
    ];
    this.#sayFace();
    void this.#load("tree");
    this.#show(this.#face.tabs[0]?.[0] ?? "");
  }

  /** Called when the view enters the document; gives what to do when it leaves. */
  arrived(): () => void {
    this.#listen();
    return () => this.#deaf();
  }

  #listen(): void {
    this.#deaf();
    this.#deaf = hear(this.#face.model, this, (path) => {
      this.#path = path;
      for (const name of ["tree", this.#open]) this.#place(name).path = path;
    });
  }

  /** A face that says what is new, or what a watch has seen. */
  take(bytes: ArrayBuffer): boolean {
    const { json } = decode(bytes);
    if (json.view === "watch") return this.#follow(bytes, json);
    this.#face = filled(FACE, json);
    this.#sayFace();
    this.#listen();
    // A page that begins anew is told nothing of what it has missed.
    this.#refresh(this.#face.stale.length ? this.#face.stale : ["tree", this.#open]);
    return true;
  }

  /** An answer that came after it was given up. */
  late(action: string, bytes: ArrayBuffer): void {
    const name = action.slice("panel ".length);
    for (const one of name === "tree" && this.#open === "source" ? [name, "source"] : [name]) this.#fill(one, bytes);
  }

  #sayFace(): void {
    const [strong, rest] = this.#face.headline;
    this.#headline.replaceChildren(element("b", {}, lines(strong)), rest ? " " : "", rest ? lines(rest, "soft", 2000) : "");
    this.#foot.replaceChildren(words(this.#face.foot));
  }

  #refresh(names: readonly string[], anew = false): void {
    for (const name of names) {
      if (name === "tree" || name === this.#open) void this.#load(name, anew);
      else this.#dot(name, true);
    }
  }

  // ---- tabs

  #tab(name: string, title: string): HTMLButtonElement {
    const made = button("", { class: "tab", id: `tab-${name}`, role: "tab", "aria-controls": "panel", "data-name": name, "data-title": title }, () => this.#show(name));
    made.append(element("span", {}, title));
    return made;
  }

  #dot(name: string, yes: boolean): void {
    const tab = this.#tabs.find((one) => one.dataset.name === name);
    tab?.querySelector("i")?.remove();
    if (yes) tab?.append(element("i", { role: "img", "aria-label": "something new", title: "something new" }));
  }

  /** Arrows move from tab to tab, which does not open it: that may run the model. */
  #key(event: KeyboardEvent): void {
    const tabs = this.#tabs;
    const at = tabs.indexOf(event.target as HTMLButtonElement);
    const to = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: tabs.length - 1 }[event.key];
    if (at < 0 || to === undefined || event.ctrlKey || event.altKey || event.metaKey) return;
    tabs[(to + tabs.length) % tabs.length]?.focus();
    event.preventDefault();
  }

  #show(name: string): void {
    this.#open = name;
    for (const tab of this.#tabs) {
      const isOpen = tab.dataset.name === name;
      set(tab, { "aria-selected": String(isOpen), tabindex: isOpen ? 0 : -1 });
    }
    this.#dot(name, false);
    set(this.#panel, { "aria-labelledby": `tab-${name}` });
    this.#panel.replaceChildren(this.#place(name).element);
    this.#point(name);
    if (this.#moves && ROLES[name]) this.#plot(name);
    else void this.#load(name);
  }

  // ---- panels

  #place(name: string): Place {
    let place = this.#places.get(name);
    if (!place) {
      const told = element("p", { class: "told", role: "status", hidden: true });
      const body = element("div");
      place = { element: element("div", {}, told, body), told, body, bytes: null, path: null };
      this.#places.set(name, place);
    }
    return place;
  }

  async #load(name: string, anew = false): Promise<void> {
    const place = this.#place(name);
    if (!place.bytes) this.#say(place, "asking the kernel…");
    try {
      this.#fill(name, await this.#kernel.ask(`panel ${name === "source" ? "tree" : name}`, { anew }));
    } catch (error) {
      const said = error instanceof Error ? error.message : String(error);
      // What it shows is of another time, but a kernel that is busy has not said so.
      if (said !== SILENT) this.#empty(place);
      this.#say(place, said, () => void this.#load(name));
    }
  }

  #say(place: Place, text: string, again?: () => void): void {
    place.told.hidden = !text;
    place.told.classList.toggle("alone", Boolean(again) && !place.bytes);
    place.told.replaceChildren(text, again ? button("ask again", { class: "plain" }, again) : "");
  }

  #empty(place: Place): void {
    place.bytes = null;
    place.body.replaceChildren();
  }

  #fill(name: string, bytes: ArrayBuffer): void {
    const place = this.#place(name);
    this.#say(place, "");
    const { json } = decode(bytes);
    if (json.view === "watch") {
      this.#follow(bytes, json);
      return this.#plot(name);
    }
    if (place.bytes && same(place.bytes, bytes)) return;
    place.bytes = bytes;
    const host = element("div");
    place.body.replaceChildren(host);
    const more = name === "tree" ? TREE : name === "source" ? SOURCE : "";
    const inside: Drawing = { style: INSIDE + more, panel: () => null };
    show(host, bytes, [...(name === "source" ? [source] : []), models, sheets, inside], this.#context.ask);
    place.path = null;
    this.#point(name);
  }

  /** Tells a panel what is selected, unless it knows. */
  #point(name: string): void {
    const place = this.#place(name);
    if (this.#path === null || place.path === this.#path) return;
    place.path = this.#path;
    tell({ model: this.#face.model, path: this.#path, source: this });
  }

  // ---- a watch

  /** Takes what a watch has seen, whichever tab is open: one that is opened while the kernel is busy has it. */
  #follow(bytes: ArrayBuffer, json: Record<string, unknown>): boolean {
    if (!this.#watch?.take(bytes)) {
      if (json.from) return false;
      this.#watch = showWatch(this.#plots, bytes);
      this.#plots.shadowRoot?.append(element("style", {}, INSIDE));
    }
    this.#see();
    const begins = json.live === true && !this.#moves;
    this.#moves = json.live === true;
    if (begins) {
      for (const name of Object.keys(ROLES)) {
        if (name === this.#open) this.#plot(name);
        else this.#dot(name, true);
      }
    }
    return true;
  }

  #plot(name: string): void {
    const place = this.#place(name);
    if (place.body.firstChild === this.#plots) return;
    this.#empty(place);
    this.#say(place, "");
    place.body.replaceChildren(this.#plots);
    this.#role = ROLES[name];
    this.#see();
  }

  #see(): void {
    if (this.#role && this.#watch?.see?.(this.#role, this.#path)) this.#role = undefined;
  }
}

function same(left: ArrayBuffer, right: ArrayBuffer): boolean {
  if (left.byteLength !== right.byteLength) return false;
  const [a, b] = [new Uint8Array(left), new Uint8Array(right)];
  return a.every((one, index) => one === b[index]);
}
