#include "src/simulate/course.h"

namespace spillway {

CoursePoint Sum(const CoursePoint& one, const CoursePoint& other, double times) {
  return {one.prompt_tokens + times * other.prompt_tokens,
          one.decode_tokens + times * other.decode_tokens, one.prefill_s + times * other.prefill_s,
          one.decode_s + times * other.decode_s};
}

void Lengthen(std::size_t head, const CoursePoint& more, std::vector<CoursePoint>& course) {
  for (std::size_t at = head; at < course.size(); ++at) course[at] = Sum(course[at], more, 1.0);
  const CoursePoint before = head == 0 ? CoursePoint{} : course[head - 1];
  course.insert(course.begin() + static_cast<std::ptrdiff_t>(head), Sum(before, more, 1.0));
}

}  // namespace spillway
