"""Whether an object runs what the jobs in it say: the one comparison of `lint`, of submit and of what GitOps applied.

Every Job and JobSet of ours carries its whole jobs, so rendering these again gives the object as it has to be. What the
object says of itself (its name, its fingerprint, the renderer's version) proves nothing: whoever changes a field can
write these too.
"""
