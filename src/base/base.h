/* src/base: what every module uses, and nothing of Ballast's own subject.
 *
 * Files, in the order to read them:
 *   base: this file, the headers that nearly every file needs;
 *   status: how functions report failure;
 *   mem: heap memory, growing arrays, regions that are freed as a whole, blocks of whole pages for arenas;
 *   fault: makes the n-th allocation or file operation fail;
 *   file, file_behind: reading and writing files, and a thread that writes behind;
 *   folder: directories, paths, durable renames, where caches are;
 *   manifest: a directory's list of files with checksums, and what differs from it;
 *   byte_store: bytes without an address, behind two calls;
 *   json: fields read with errors that name file and field; nearest: the name that was probably meant;
 *   utf8: text;
 *   size: sizes as people write them; clock: time;
 *   log, terminal: lines for a person, the live line, the progress of long work;
 *   process: what a program does first;
 *   random: counter-based numbers; half: 16-bit floating point;
 *   hash: hashes of memory, and of records in files;
 *   wide_vectors: plain loops compiled for each instruction set.
 *
 * Headers include this one for C's own headers, failures and memory; a .c file has it through its headers. */
#pragma once

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/status.h"
