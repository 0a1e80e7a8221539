# Sourced by the programs beside it, with $root set to the checkout. It defines `environment WHAT`:
# afterwards $env_dir is a private environment with what pyproject.toml asks for.
#   WHAT is "run" (what Liza needs) or "test" (that, and the tools of the dev group).
#
# The common case is answered here, without starting Python: a stamp, written last, names the pyproject.toml and the
# place that the environment was made for. Everything else is bin/_environment.py's.

environment() {
  sum=$(cksum <"$root/pyproject.toml")
  sum=${sum%% *}
  env_dir=$root/.liza-venv/$sum
  stamp=
  if [ -r "$env_dir/stamp-$1" ]; then
    IFS= read -r stamp <"$env_dir/stamp-$1" || :
  fi
  # The link of the interpreter dangles after an upgrade of Python, and paths inside are wrong after a move.
  if [ "$stamp" = "$root" ] && [ -x "$env_dir/bin/python" ]; then
    return 0
  fi
  find_python
  "$python" -I "$root/bin/_environment.py" "$root" "$env_dir" "$1"
}

# Sets $python to the first interpreter that is new enough, or says which one was too old and leaves with 5.
find_python() {
  found=
  for python in python3 python3.11 python3.12 python3.13 python3.14; do
    version=$("$python" -c 'import sys; print("%d.%d.%d" % sys.version_info[:3])' 2>/dev/null) || continue
    case $version in
      3.[0-9].* | 3.10.*) found="$found${found:+, }$version ($(command -v "$python"))" ;;
      3.*) return 0 ;;
    esac
  done
  if command -v uv >/dev/null 2>&1 && python=$(uv python find --no-config '>=3.11' 2>/dev/null); then
    return 0
  fi
  {
    echo "liza: Python 3.11 or newer is needed; found: ${found:-none}"
    echo "  Debian, Ubuntu: sudo apt install python3 python3-venv · with uv: uv python install 3.12"
  } >&2
  exit 5
}
