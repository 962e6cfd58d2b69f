// What lives on in a program that was captured is to be small: it may be attached to many times.
#pragma once

namespace ai_prof {

// Empties a container and frees its memory, which `= {}` may keep.
template <class Container>
void give_back(Container& container) {
  Container().swap(container);
}

}  // namespace ai_prof
