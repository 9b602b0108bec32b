#!/bin/sh
# Packages the extension for VS Code (editors/vscode): target/reprise.vsix, which `code --install-extension` takes. Needs node and npm, and fetches the
# compiler and the packager from npm.
set -eu
cd "$(dirname "$0")/.."

place=target/vscode
mkdir -p "$place"
# npm writes where it works, and sources stay as they are.
cp -r editors/vscode/. "$place"
cat LICENSE-MIT > "$place/LICENSE"
cd "$place"
npm install --no-audit --no-fund --ignore-scripts --loglevel=error
npx --no-install tsc -p .
npx --no-install vsce package --no-dependencies --skip-license --allow-missing-repository --out ../reprise.vsix
