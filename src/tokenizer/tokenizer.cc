#include "src/tokenizer/tokenizer.h"
