// Builds the front end into modlab/views/static, where Python finds it and git keeps it.
//
//   node build.mjs           writes still.js (a tree, a state, values at rest), sheet.js (sheets at rest),
//                            watch.js (a watch at rest), settings.js and lesson.js (a lesson's), live.js (the widget, which has all)
//                            scripts/tour.js (the page docs/tour.html) and scripts/clinic/clinic.js (docs/clinic.html)
//   node build.mjs --check   builds in memory; fails when a committed file differs or an entry is over its budget
//
// esbuild is deterministic for one version and equal sources, so "the same bytes" means "built from these sources".
import { readFile, writeFile, mkdir } from "node:fs/promises";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";
import { build, transform } from "esbuild";

const HERE = dirname(fileURLToPath(import.meta.url));
const STATIC = join(HERE, "..", "modlab", "views", "static");

// `still`, `sheet`, `watch` and `settings` are inline classic scripts in an output, `live` is a module that anywidget loads.
const ENTRIES = [
  { source: "src/still.ts", target: "still.js", format: "iife", gzipBudget: 30_000 },
  { source: "src/sheet/entry.ts", target: "sheet.js", format: "iife", gzipBudget: 30_000 },
  { source: "src/watch/entry.ts", target: "watch.js", format: "iife", gzipBudget: 46_000 },
  { source: "src/lessons/entry.ts", target: "settings.js", format: "iife", gzipBudget: 3_000 },
  { source: "src/lessons/tour-entry.ts", target: "../../../scripts/tour.js", format: "iife", gzipBudget: 4_000 },
  { source: "src/clinic/entry.ts", target: "../../../scripts/clinic/clinic.js", format: "iife", gzipBudget: 8_000 },
  { source: "src/lessons/lesson.ts", target: "lesson.js", format: "esm", gzipBudget: 6_000 },
  { source: "src/live.ts", target: "live.js", format: "esm", gzipBudget: 76_000 },
];

/** `import css from "./x.css"` gives the minified style sheet as a string (it goes into a shadow root). */
const cssAsText = {
  name: "css-as-text",
  setup(pending) {
    pending.onLoad({ filter: /\.css$/ }, async ({ path }) => {
      const css = await transform(await readFile(path, "utf8"), { loader: "css", minify: true });
      return { contents: css.code.trim(), loader: "text" };
    });
  },
};

async function bundle({ source, format }) {
  const result = await build({
    absWorkingDir: HERE,
    entryPoints: [source],
    bundle: true,
    write: false,
    format,
    target: "es2022",
    minify: true,
    charset: "utf8",
    legalComments: "none",
    plugins: [cssAsText],
    logLevel: "warning",
  });
  return Buffer.from(result.outputFiles[0].contents);
}

/** What is wrong with one entry, in sentences; an empty list when nothing is. */
async function problems(entry, built, check) {
  const found = [];
  const zipped = gzipSync(built, { level: 9 }).length;
  console.log(`${entry.target.padEnd(9)} ${kilobytes(built.length)} KB, gzip ${kilobytes(zipped)} of ${kilobytes(entry.gzipBudget)} KB`);
  if (zipped > entry.gzipBudget) found.push(`${entry.target} is over its budget of ${kilobytes(entry.gzipBudget)} KB (gzip).`);
  if (check && !built.equals(await committed(entry))) {
    found.push(`modlab/views/static/${entry.target} was not built from these sources: run "make bundle" and commit the result.`);
  }
  return found;
}

async function committed({ target }) {
  return readFile(join(STATIC, target)).catch(() => Buffer.alloc(0));
}

function kilobytes(bytes) {
  return (bytes / 1000).toFixed(1);
}

const check = process.argv.includes("--check");
await mkdir(STATIC, { recursive: true });
let failed = false;
for (const entry of ENTRIES) {
  const built = await bundle(entry);
  if (!check) await writeFile(join(STATIC, entry.target), built);
  for (const problem of await problems(entry, built, check)) {
    failed = true;
    console.error(problem);
  }
}
process.exitCode = failed ? 1 : 0;
