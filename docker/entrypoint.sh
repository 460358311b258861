#!/bin/sh
# Makes the workspace on the first start, then runs a command of medloop in it: api serve, or what is named after the image.
set -eu
if [ ! -e "$MEDLOOP_HOME/medloop.yaml" ]; then
    medloop init "$MEDLOOP_HOME"
fi
if [ -n "${MEDLOOP_PUBLIC_NAME:-}" ] && [ "$*" = "api serve --port 8000" ]; then
    set -- "$@" --name "$MEDLOOP_PUBLIC_NAME"
fi
exec medloop "$@"
