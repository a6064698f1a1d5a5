// Machine files that come with the program, by name: "t4" is share/spillway/machines/t4.json, or
// examples/machines/t4.json in the tree that the program was built from.
// Thread rule: pure functions of the file system; any thread.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace spillway {

// Names of all of them, in order of the alphabet; none where their folder is not there.
std::vector<std::string> ShippedMachines();

// `text` if it is a path or there is such a file; otherwise the shipped file of that name. Throws:
// Error kMachine: there is neither; its text has the names there are.
std::filesystem::path MachinePath(const std::string& text);

}  // namespace spillway
