// Course of a run: where it is after each of its passes. Pure functions of values; any thread.
#pragma once

#include <cstddef>
#include <vector>

#include "spillway/prediction.h"  // CoursePoint

namespace spillway {

// `one` and `times` times the other, number by number.
CoursePoint Sum(const CoursePoint& one, const CoursePoint& other, double times);

// Makes room for `more` work, evenly done, behind the first `head` points.
void Lengthen(std::size_t head, const CoursePoint& more, std::vector<CoursePoint>& course);

}  // namespace spillway
