// Renders chats: one JSON object a line on standard input, {"template", "messages", "tools",
// "documents", "variables", "special_tokens", "add_generation_prompt", "continue_final_message",
// "now": [year, month, day, hour, minute, second]}; one a line on standard output, {"text"} or
// {"error", "line"}. For comparisons with transformers.
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/chat/chat_case.h"

int main() {
  for (std::string line; std::getline(std::cin, line);)
    std::cout << spillway::RenderedCase(line).dump() << std::endl;
}
