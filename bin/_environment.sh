# Sourced by the scripts in this directory, with $root set to the checkout. Defines `environment WHAT`, which sets
# $env_dir to a private environment with the packages of pyproject.toml.
#   WHAT is "run" (the dependencies of Liza), "test" (also the tools of the groups dev and docs), or
#   "mutation" (also those of the mutation group).
#
# The common case needs no Python: the stamp, written last, has the path of the checkout, and the directory's name is the
# checksum of pyproject.toml. Otherwise bin/_environment.py creates the environment.

environment() {
  unset PYTHONHOME # The home of another Python: this one would not start.
  sum=$(cksum <"$root/pyproject.toml")
  sum=${sum%% *}
  env_dir=$root/.liza-venv/$sum
  stamp=
  if [ -r "$env_dir/stamp-$1" ]; then
    IFS= read -r stamp <"$env_dir/stamp-$1" || :
  fi
  # The interpreter's symlink is broken after an upgrade of Python; the paths inside are wrong after a move.
  if [ "$stamp" = "$root" ] && [ -x "$env_dir/bin/python" ]; then
    return 0
  fi
  find_python
  "$python" -I "$root/bin/_environment.py" "$root" "$env_dir" "$1"
}

# Set $python to the first interpreter that is new enough; otherwise print those that are too old and exit with 5.
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
