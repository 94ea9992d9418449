/* The directory for caches: files that can be recreated. */
#ifndef BALLAST_BASE_CACHE_FOLDER_H
#define BALLAST_BASE_CACHE_FOLDER_H

/* $XDG_CACHE_HOME/ballast, or ~/.cache/ballast, or .ballast-cache where the user has no home; the directory need not
 * exist. In fresh memory; NULL when out of memory. */
char *cache_folder(void);

#endif
