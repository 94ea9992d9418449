#include "search/scale/calibration.h"

struct calibration calibration_default(void) {
    return (struct calibration){
#define CALIBRATION_VALUE(name, value, meaning) .name = value,
        CALIBRATION_LIST(CALIBRATION_VALUE)
#undef CALIBRATION_VALUE
    };
}
