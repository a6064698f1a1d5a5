// ExpectError: the Error that some action must end with. Thread rule: any thread.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string_view>

#include "spillway/error.h"

namespace spillway::testing {

// The Error that `action` throws names `text`, and keeps the contract of messages: one line, at
// most 300 bytes.
inline void ExpectError(ErrorCode code, std::string_view text,
                        const std::function<void()>& action) {
  try {
    action();
    ADD_FAILURE() << "nothing was refused; expected " << ErrorName(code) << " with \"" << text
                  << "\"";
  } catch (const Error& error) {
    const std::string_view message = error.what();
    EXPECT_EQ(ErrorName(error.code()), ErrorName(code)) << message;
    EXPECT_NE(message.find(text), std::string_view::npos) << message << " lacks: " << text;
    EXPECT_EQ(message.find('\n'), std::string_view::npos) << message;
    // Nothing is cut off, so the advice at the end is there.
    const std::string_view head = "spillway: error[]: ";
    EXPECT_LE(message.size() + head.size() + ErrorName(code).size(), 300U) << message;
  }
}

}  // namespace spillway::testing
