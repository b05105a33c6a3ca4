#!/usr/bin/env node
"use strict";

// Runs the binary that npm has installed for this system.
const { spawn } = require("node:child_process");
const { optionalDependencies: made, version } = require("../package.json");

const windows = process.platform === "win32";
const system = `@fsm-proxy/${process.platform}-${process.arch}`;
const args = process.argv.slice(2);

let binary;
try {
  binary = require.resolve(`${system}/bin/fsm-proxy${windows ? ".exe" : ""}`);
} catch {
  const packages = [`fsm-proxy@${version}`, `${system}@${version}`];
  const fix = __dirname.includes("_npx") ? `npx -p ${packages.join(" -p ")} fsm-proxy` : `npm install ${packages[1]}`;
  process.stderr.write(
    system in made
      ? `fsm-proxy: the package with the binary, ${system}, is not installed. npm leaves it out with --omit=optional,\n` +
          `and where a lock file or node_modules comes from another system. To get it: ${fix}\n`
      : `fsm-proxy: there is no package for ${process.platform} on ${process.arch}, only ${Object.keys(made).join(", ")}.\n` +
          "To build it: go install github.com/fsm-proxy/fsm-proxy/cmd/fsm-proxy@latest\n",
  );
  process.exit(1);
}

// It passes on what it is told, and ends as the binary does. On Windows Ctrl-C comes to both, and a signal would kill.
const child = spawn(binary, args, { stdio: "inherit", windowsHide: true });
for (const signal of windows ? ["SIGINT", "SIGBREAK"] : ["SIGINT", "SIGTERM", "SIGHUP"]) {
  process.on(signal, () => windows || child.kill(signal));
}

// npx has a shell between itself and this. When it is told to end it ends the shell, which passes nothing on.
const parent = process.ppid;
if (process.env.npm_lifecycle_event && !windows) {
  const watch = setInterval(() => {
    if (process.ppid !== parent) {
      clearInterval(watch);
      child.kill("SIGTERM");
    }
  }, 250);
}

child.on("error", (error) => {
  process.stderr.write(`fsm-proxy: starting ${binary}: ${error.message}\n`);
  process.exit(1);
});
child.on("exit", (code, signal) => {
  if (signal) {
    process.removeAllListeners(signal);
    process.kill(process.pid, signal);
  } else {
    process.exit(code);
  }
});
