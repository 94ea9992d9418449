/* The runs in tests/fixtures/report, which are stored as archives. */
#pragma once

/* Unpacks tests/fixtures/report/NAME.tar.gz into `folder` and writes "folder/NAME" to `path`. Fails the test where it
 * cannot. */
void report_run_unpack(const char *name, const char *folder, char path[512]);
