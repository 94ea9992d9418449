/* Writes an llm.c token file of random ids that follow a power law, like the words of a text.
 *
 *     build/bench/random_tokens FILE COUNT VOCABULARY */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { HEADER = 256, MAGIC = 20240520, VERSION = 1 };
static const double EXPONENT = 0.6;

static double draw(uint64_t *state) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return ((double)(*state >> 11) + 1) / 9007199254740993.0; /* above 0, at most 1 */
}

int main(int count, char **arguments) {
    if (count != 4) {
        fputs("usage: random_tokens FILE COUNT VOCABULARY\n", stderr);
        return 2;
    }
    long tokens = atol(arguments[2]), vocabulary = atol(arguments[3]);
    int32_t header[HEADER] = {MAGIC, VERSION, (int32_t)tokens};
    FILE *file = fopen(arguments[1], "wb");
    if (!file) {
        perror(arguments[1]);
        return 1;
    }
    fwrite(header, sizeof header, 1, file);
    uint64_t state = 1;
    for (long i = 0; i < tokens; i++) {
        double pareto = pow(draw(&state), -1 / EXPONENT);
        uint16_t id = (uint16_t)(pareto < (double)vocabulary ? pareto - 1 : (double)vocabulary - 1);
        fwrite(&id, sizeof id, 1, file);
    }
    if (fclose(file) != 0) {
        perror(arguments[1]);
        return 1;
    }
    return 0;
}
