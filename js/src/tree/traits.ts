/** What a search word says about one module apart from its path: its type, shapes and flags. */
import { hasSizes, type Word } from "../search/query";
import type { Entry, Subtree, TreePayload } from "../payload";

/** Whether a word holds for a module whatever its path. */
export function describes(tree: TreePayload, subtree: Subtree, word: Word): boolean {
  if (flagged(tree, subtree, word.text)) return true;
  if (!word.path) return false;
  if (word.path.matches(subtree.type)) return true;
  if (word.text.includes("=") && subtree.extra.toLowerCase().includes(word.text)) return true;
  const { sizes } = word;
  return sizes !== null && tensorsOf(tree, subtree).some((entry) => hasSizes(entry.shape, sizes));
}

export function tensorsOf(tree: TreePayload, subtree: Subtree): Entry[] {
  return subtree.tensors.flatMap((index) => tree.entries[index] ?? []);
}

/** "trainable" and "frozen" are said of a module's own parameters: else the root would answer to both. */
function flagged(tree: TreePayload, subtree: Subtree, flag: string): boolean {
  switch (flag) {
    case "eval":
      return !subtree.training;
    case "train":
      return subtree.training;
    case "trainable":
      return tensorsOf(tree, subtree).some((entry) => entry.kind === "parameter" && entry.trainable);
    case "frozen":
      return tensorsOf(tree, subtree).some((entry) => entry.kind === "parameter" && !entry.trainable);
    case "tied":
      return tensorsOf(tree, subtree).some((entry) => entry.tied !== null);
    case "lazy":
      return subtree.flags.includes("lazy") || tensorsOf(tree, subtree).some((entry) => isLazy(entry));
    case "reserved":
    case "buffer":
    case "parameter":
      return tensorsOf(tree, subtree).some((entry) => entry.kind === flag);
    default:
      return flag.length > 2 && (subtree.flags.some((own) => own.includes(flag)) || typed(tree, subtree, flag));
  }
}

function typed(tree: TreePayload, subtree: Subtree, word: string): boolean {
  return tensorsOf(tree, subtree).some((entry) => entry.dtype === word || entry.device === word);
}

export function isLazy(entry: Entry): boolean {
  return entry.kind !== "reserved" && !entry.shapeText && entry.shape === null;
}
