#include "src/requests/reader.h"
