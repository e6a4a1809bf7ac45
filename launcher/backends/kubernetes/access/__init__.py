"""How this machine reaches a cluster: the kubeconfig, its login, and the proxy on the way, as kubectl understands them.

kubeconfig    the context that counts, out of one file or several
credentials   what a request carries: a token, a password, a file that rotates
plugin        the login programs of kubeconfigs (exec plugins)
oidc          OIDC logins with a refresh token, which kubeconfigs keep themselves
proxies       which proxy leads to a server
waking        streams that a suspended machine has lost
"""
