// Assertions over statuses.
#ifndef OPWIRE_TESTS_ASSERT_OK_H_
#define OPWIRE_TESTS_ASSERT_OK_H_

#include <gtest/gtest.h>

#include "ir/base/status.h"

#define ASSERT_OK(expression)                       \
  do {                                              \
    const opwire::Status ok_status_ = (expression); \
    ASSERT_TRUE(ok_status_.ok()) << ok_status_;     \
  } while (false)
// ASSERT_OK_AND(auto x, MakeX());
#define ASSERT_OK_AND(lhs, expression) ASSERT_OK_AND_(OPWIRE_CONCAT(ok_, __LINE__), lhs, expression)
#define ASSERT_OK_AND_(tmp, lhs, expression) \
  auto tmp = (expression);                   \
  ASSERT_TRUE(tmp.ok()) << tmp.status();     \
  lhs = *std::move(tmp)

#endif  // OPWIRE_TESTS_ASSERT_OK_H_
