// Required by each Node process of a proof (NODE_OPTIONS): logs the files of the person's checkout that the tests load.
"use strict";
const fs = require("node:fs");
const Module = require("node:module");
const log = process.env.LIZA_PROOF_LOG;
const root = (process.env.LIZA_PROOF_ROOT || "/").replace(/\/$/, "") + "/";
const slot = (process.env.LIZA_PROOF_SLOT || "/").replace(/\/$/, "") + "/";
const noted = new Set();
const find = Module._resolveFilename;
if (log) {
  Module._resolveFilename = function (...words) {
    const path = find.apply(this, words);
    const own = typeof path === "string" && path.startsWith(root) && !path.startsWith(slot);
    if (own && !path.includes("/node_modules/") && !noted.has(path) && noted.size < 2000) {
      noted.add(path);
      try {
        fs.appendFileSync(log, `file\t${path}\t${process.execPath}\n`);
      } catch {}
    }
    return path;
  };
}
