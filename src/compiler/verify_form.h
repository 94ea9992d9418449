/* A part of program_verify: every index, size and border is legal. */
#pragma once

#include "compiler/program.h"

/* FAILED "program: instruction 12 (layer 0.q): buffer x: rule". */
#define FAULT(program, index, operand, ...)                                                                            \
    verify_fault(program, index, operand, status_set(STATUS_FAILED, __VA_ARGS__))
enum status verify_fault(const struct program *program, int32_t index, const struct operand *operand,
                         enum status status);

/* Buffers, sections and instructions, each by itself. */
enum status program_verify_form(const struct program *program);

/* Whether a buffer is gathered from shards, of which its original is this rank's, and is no plain copy. */
static inline bool buffer_is_gathered(const struct program *program, const struct buffer *buffer) {
    return buffer->original >= 0 && program->buffers.items[buffer->original].pack != buffer->pack;
}
