// build.mjs: turns the shells and their modules into the files that the binary carries.
//
// usage: node build.mjs OUT
//
// Each *.html here is a shell. What it names as src="src/…" or href="src/…" is bundled by esbuild
// into OUT under a name that holds the hash of its content, and the shell then names it as
// /assets/NAME. A dynamic import() becomes a file of its own, which is loaded when it is needed.
// Text gets a .gz and a .br beside it.
import { mkdir, readFile, readdir, writeFile } from "node:fs/promises";
import path from "node:path";
import process from "node:process";
import { fileURLToPath } from "node:url";
import zlib from "node:zlib";
import esbuild from "esbuild";

const here = path.dirname(fileURLToPath(import.meta.url));
const reference = /\b(src|href)="(src\/[^"]+)"/g;

async function readShells() {
  const names = (await readdir(here)).filter((name) => name.endsWith(".html"));
  return Promise.all(
    names.sort().map(async (name) => [name, await readFile(path.join(here, name), "utf8")]),
  );
}

function referencesOf(shells) {
  const found = shells.flatMap(([, text]) => [...text.matchAll(reference)].map((match) => match[2]));
  return [...new Set(found)].sort();
}

async function bundle(entryPoints) {
  return esbuild.build({
    absWorkingDir: here,
    entryPoints,
    bundle: true,
    minify: true,
    splitting: true,
    format: "esm",
    target: ["chrome109", "firefox115", "safari16.4"],
    charset: "utf8",
    legalComments: "none",
    outdir: "out", // nothing is written there: files are taken from memory
    publicPath: "/assets/",
    entryNames: "[name]-[hash]",
    chunkNames: "[name]-[hash]",
    assetNames: "[name]-[hash]",
    loader: { ".svg": "copy", ".png": "copy", ".woff2": "copy" },
    metafile: true,
    write: false,
    logLevel: "warning",
  });
}

// From "src/app.js" to what was made of it, and what that imports at once.
function outputsOf(metafile) {
  const outputs = new Map();
  for (const [name, output] of Object.entries(metafile.outputs)) {
    if (output.cssBundle) {
      throw new Error(`${output.entryPoint} imports CSS: let the shell or another CSS file name it`);
    }
    if (output.entryPoint) {
      const imports = output.imports
        .filter((one) => one.kind === "import-statement" && !one.external)
        .map((one) => path.basename(one.path));
      outputs.set(output.entryPoint, { name: path.basename(name), imports });
    } else if (Object.keys(output.inputs).length === 1) {
      outputs.set(Object.keys(output.inputs)[0], { name: path.basename(name), imports: [] });
    }
  }
  return outputs;
}

function finishShell(text, outputs) {
  const early = new Set();
  const named = text.replace(reference, (_, attribute, source) => {
    const output = outputs.get(source);
    output.imports.forEach((name) => early.add(name));
    return `${attribute}="/assets/${output.name}"`;
  });
  const links = [...early].map((name) => `<link rel="modulepreload" href="/assets/${name}">\n`);
  return named.replace("</head>", `${links.join("")}</head>`);
}

function compressed(bytes) {
  return {
    ".gz": zlib.gzipSync(bytes, { level: 9 }),
    ".br": zlib.brotliCompressSync(bytes, {
      params: {
        [zlib.constants.BROTLI_PARAM_MODE]: zlib.constants.BROTLI_MODE_TEXT,
        [zlib.constants.BROTLI_PARAM_QUALITY]: zlib.constants.BROTLI_MAX_QUALITY,
        [zlib.constants.BROTLI_PARAM_SIZE_HINT]: bytes.length,
      },
    }),
  };
}

async function writeAll(out, files) {
  await mkdir(out, { recursive: true });
  for (const [name, bytes] of files) {
    await writeFile(path.join(out, name), bytes);
    if (/\.(html|js|css|svg)$/.test(name)) {
      for (const [suffix, smaller] of Object.entries(compressed(bytes))) {
        if (smaller.length < bytes.length) {
          await writeFile(path.join(out, name + suffix), smaller);
        }
      }
    }
  }
}

const out = process.argv[2];
if (out === undefined) {
  console.error("usage: node build.mjs OUT");
  process.exit(2);
}
const shells = await readShells();
const { metafile, outputFiles } = await bundle(referencesOf(shells));
const outputs = outputsOf(metafile);
const files = outputFiles.map((file) => [path.basename(file.path), Buffer.from(file.contents)]);
for (const [name, text] of shells) {
  files.push([name, Buffer.from(finishShell(text, outputs))]);
}
await writeAll(out, files);
