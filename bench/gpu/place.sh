# shellcheck shell=bash disable=SC2154 # check.sh sets what is not set here
# The bundle that check.sh runs, made whole: unpacked, with the fixtures of the checkout, and with links to NVIDIA's
# libraries of the machine, where bundle.sh left them out. Uses: work, source.

# Folders that may have NVIDIA's libraries, a line each: the loader's, the toolkit's, those that pip installed.
nvidia_folders() {
    tr ':' '\n' <<<"${LD_LIBRARY_PATH:-}"
    PATH=$PATH:/sbin:/usr/sbin ldconfig -p 2>/dev/null | sed -n 's,.*lib\(cublasLt\|cudnn\|nccl\|nvrtc\)\.so.* => \(.*\)/.*,\2,p'
    printf '%s\n' /usr/local/cuda*/lib64 /usr/local/cuda*/lib /usr/local/cuda*/targets/x86_64-linux/lib
    python3 -c 'import glob, nvidia
for root in nvidia.__path__: print(*glob.glob(root + "/*/lib"), sep="\n")' 2>/dev/null
}

# has DIR PATTERN: whether it has a file of such a name.
has() { compgen -G "$1/$2" >/dev/null; }

# place_borrow DIR: links in DIR/lib to the files that each pattern of DIR/borrowed names, all from the first folder that
# has any, so that they are of one version. What is found nowhere stays missing; part `libraries` tells which.
place_borrow() {
    local pattern folder folders
    [ -e "$1/borrowed" ] || return 0
    mapfile -t folders < <(nvidia_folders | sed '/./!d')
    while read -r pattern; do
        for folder in "${folders[@]}"; do
            if has "$1/lib" "$pattern" || ! has "$folder" "$pattern"; then continue; fi
            # shellcheck disable=SC2086 # a pattern
            ln -s "$folder"/$pattern "$1/lib/"
        done
    done <"$1/borrowed"
}

# place_missing DIR: the patterns of which nothing was found.
place_missing() {
    local pattern
    [ -e "$1/borrowed" ] || return 0
    while read -r pattern; do has "$1/lib" "$pattern" || echo "$pattern"; done <"$1/borrowed"
}

# place_open DIR|TAR|'': prints the folder.
place_open() {
    local place=$1
    if [ -f "$place" ]; then
        place=$work/bundle
        rm -rf "$place" && mkdir -p "$place" || return
        # Python unpacks where there is no xz.
        tar -C "$place" -xf "$1" 2>/dev/null || python3 -m tarfile -e "$1" "$place" || {
            echo "check: $1 cannot be unpacked" >&2
            return 1
        }
    fi
    if [ -n "$place" ]; then
        [ -e "$place/fixtures" ] || [ ! -d "$source/tests/fixtures" ] || ln -s "$source/tests/fixtures" "$place/fixtures"
        place_borrow "$place"
    fi
    echo "$place"
}
