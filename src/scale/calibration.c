#include "scale/calibration.h"

#include <string.h>

const struct calibration_number calibration_numbers[] = {
#define CALIBRATION_NUMBER(name, start, value, least, most, meaning) {#name, start, value, least, most, meaning},
    CALIBRATION_LIST(CALIBRATION_NUMBER)
#undef CALIBRATION_NUMBER
};

struct calibration calibration_default(void) {
    struct calibration calibration;
    for (int i = 0; i < CALIBRATION_COUNT; i++)
        calibration_set(&calibration, i, calibration_numbers[i].value);
    return calibration;
}

struct calibration calibration_start(void) {
    struct calibration calibration;
    for (int i = 0; i < CALIBRATION_COUNT; i++)
        calibration_set(&calibration, i, calibration_numbers[i].start);
    return calibration;
}

double calibration_get(const struct calibration *calibration, int index) {
    double value;
    memcpy(&value, (const char *)calibration + (size_t)index * sizeof value, sizeof value);
    return value;
}

void calibration_set(struct calibration *calibration, int index, double value) {
    memcpy((char *)calibration + (size_t)index * sizeof value, &value, sizeof value);
}
