// Quotes in documents: the command, its output, and the exit code, under a heading of a Markdown
// file.
//
//   ```console
//   $ opwire devices
//   opwire: UNAVAILABLE: no registry: nothing is at RUNTIME/registry
//   [exit code 3]
//   ```
#ifndef OPWIRE_TESTS_CLI_TRANSCRIPT_H_
#define OPWIRE_TESTS_CLI_TRANSCRIPT_H_

#include <string>

#include "tests/cli/house.h"

namespace opwire {

// The placeholder for every capability.
inline constexpr const char* kCapability = "0123456789abcdef0123456789abcdef";

// Set by --update: Compare writes the document instead.
extern bool update_documents;

class Transcript {
 public:
  explicit Transcript(House& house) : house_(house) {}
  // Runs the command in the house and quotes it.
  void Type(const std::string& command) { Quote(command, house_.Run(command)); }
  // Quotes a command that was started by other means.
  void Quote(const std::string& command, const House::Result& result);
  // Adds a line that the user types and that has no output, such as one that ends in '&'.
  void Say(const std::string& line) { text_ += line + "\n"; }

  // Expects that the first console block under "## HEADING" of this file of the checkout equals the
  // transcript.
  void Compare(const std::string& file, const std::string& heading) const;

 private:
  House& house_;
  std::string text_;
};

// Reads a file of the checkout; and returns its first block of this language under a heading.
std::string ReadDocument(const std::string& file);
std::string BlockOf(const std::string& document, const std::string& heading,
                    const std::string& language);

}  // namespace opwire

#endif  // OPWIRE_TESTS_CLI_TRANSCRIPT_H_
