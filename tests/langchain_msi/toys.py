"""LangChain's form of the toy embedder."""

from langchain_core.embeddings import Embeddings

from msi_engine.testing import ToyEmbedder


class ToyEmbeddings(Embeddings):
    """Counts words; notes what it is asked."""

    def __init__(self):
        self.toy = ToyEmbedder()

    def embed_documents(self, texts):
        return self.toy.embed(texts).tolist()

    def embed_query(self, text):
        return self.embed_documents([text])[0]

    @property
    def asked(self):
        return [text for call in self.toy.asked for text in call]
